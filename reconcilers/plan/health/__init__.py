"""What follows from what the coordinator has found out about the steps of a running job."""
