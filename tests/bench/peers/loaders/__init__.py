"""One module per loader: `open_batches(job)` gives an endless iterator of tuples of arrays, the images first."""
