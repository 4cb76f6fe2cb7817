//! Every on-disk format: encode, decode, classify; knows nothing of runs or faults.
