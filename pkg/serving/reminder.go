package serving

import "time"

// reminderInterval is how often a problem that lasts is logged.
const reminderInterval = 10 * time.Minute

// Reminder says when a problem is worth a line in the log: when it begins, when it is
// another one, and every ten minutes. The zero Reminder knows of no problem.
type Reminder struct {
	problem       string
	began, logged time.Time
}

// Due takes the problem that there is now, empty if there is none. It reports whether that is
// to be logged, an end included, and how long there has been any.
func (r *Reminder) Due(problem string, now time.Time) (due bool, lasted time.Duration) {
	if r.problem != "" {
		lasted = now.Sub(r.began)
	} else {
		r.began = now
	}
	due = problem != r.problem || problem != "" && now.Sub(r.logged) >= reminderInterval
	if due {
		r.logged = now
	}
	r.problem = problem
	return due, lasted
}
