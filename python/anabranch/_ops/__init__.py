"""What the dispatcher must know about each operator: fake kernel, autograd, vmap. One file each."""
