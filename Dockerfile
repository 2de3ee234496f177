# The image of one program, for those who build with a container engine:
#
#   docker build --build-arg PROGRAM=recommender -t loadline-recommender .
#
# `make images` needs no engine and gives the same files in an image that is equal to the byte
# each time.
FROM golang:1.26 AS build
ARG PROGRAM
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o /program ./${PROGRAM:?is recommender, updater or admission-controller}

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /program /program
USER 65534:65534
ENTRYPOINT ["/program"]
