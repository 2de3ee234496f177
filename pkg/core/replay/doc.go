// Package replay plays a recording of a container's usage against a recommender.
//
// Run takes a Recording, a Setup and an Advisor. It samples, recommends, plans and
// resizes as the programs do, with the same planner, and shows a Witness what happens:
// samples, recommendations, changes and kills. SimulatedRecommender is the recommender
// of a cluster without the cluster; Fixed and MovingMax are what a recipe must be better
// than. A Timeline keeps what a chart shows.
//
// It does not judge; package backtest does.
package replay
