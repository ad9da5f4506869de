"""Arrays of numpy and of torch, and the operations that models need, written once for both."""
