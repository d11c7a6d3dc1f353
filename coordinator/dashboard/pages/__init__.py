"""The pages of the dashboard: for each page, one pure function from what was read to what its template shows."""
