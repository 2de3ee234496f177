# The image of one program, for those who build with a container engine:
#
#   docker build --build-arg PROGRAM=recommender -t loadline-recommender .
#
# `make images` needs no engine and gives an image that is equal to the byte each time. The program has the
# same path in both; /program leads to it, because what an image starts cannot be named by an argument.
FROM golang:1.26 AS build
ARG PROGRAM
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN mkdir -p /image/etc/ssl/certs \
    && CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "/image/${PROGRAM:?is recommender, updater or admission-controller}" "./cmd/${PROGRAM}" \
    && ln -s "${PROGRAM}" /image/program \
    && cp /etc/ssl/certs/ca-certificates.crt /image/etc/ssl/certs/ \
    && echo 'nobody:x:65534:65534:nobody:/:/sbin/nologin' > /image/etc/passwd \
    && echo 'nobody:x:65534:' > /image/etc/group

FROM scratch
COPY --from=build /image/ /
USER 65534:65534
ENTRYPOINT ["/program"]
