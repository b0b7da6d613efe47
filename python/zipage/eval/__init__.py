"""Benchmarks of answers: mathematics (GSM8K, AMC, AIME) and LongBench. `python -m zipage.eval --help`."""
