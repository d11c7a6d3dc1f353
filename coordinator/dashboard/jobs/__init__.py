"""What the pages about jobs show: which jobs a list has, and what is read about one of them."""
