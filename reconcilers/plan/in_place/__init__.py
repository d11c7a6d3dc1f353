"""Pure decisions about restarts in place, and about pods that end in one; nothing about why a job restarts."""
