//! Ranges, rates, buffers, the dataset index and digests: values without files, sockets or clock.
