"""Games of `bench fairness --games`: queues that try to gain more than their share. The measurement of honest queues
does not belong here."""
