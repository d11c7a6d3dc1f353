"""Plans for jobs whose charge is smaller than what their pods request, or are to request."""
