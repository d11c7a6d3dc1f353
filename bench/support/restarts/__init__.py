"""What the benchmarks of restarts share: played kubelets, and jobs whose ranks say when they start."""
