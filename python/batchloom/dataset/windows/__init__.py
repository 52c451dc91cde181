"""Windows over time series: series, the shape of a window, a part of the time, and the dataset that holds all three."""
