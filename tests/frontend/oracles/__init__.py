"""Operations with the answers of numpy and PyTorch, by family."""
