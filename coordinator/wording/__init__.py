"""What commands and pages say about jobs and queues: sentences, rows and numbers, as values.

How they are drawn does not belong here: no terminal, no page, no widths.
"""
