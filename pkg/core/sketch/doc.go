// Package sketch keeps compact summaries of a container's usage that recipes ask for
// and the histograms of a profile do not hold.
//
// A Sketch has the parts that a recipe needs: DailyPeaks are the highest memory use in
// windows of six hours, Kills the last OOM kills, Load histograms that forget, Points,
// Hours, Weighted and Models the usage of the last days. Pressed is there only where
// somebody knows how long CPU work waited. LimitRatio is no usage, but what the last
// pods were declared with: it is here because it must outlive them, and a restart.
//
// Samples and kills fill it as they come; it knows no recipe. Two sketches can be
// merged, Adapt makes a sketch serve another recipe, and Image is its form on disk:
// Read makes the same sketch of it, to the bit.
package sketch
