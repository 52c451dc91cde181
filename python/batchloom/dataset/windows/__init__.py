"""Windows of time series: the dataset, the series that it reads, and what forecasters do to both."""
