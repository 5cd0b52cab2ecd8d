static inline int64_t t_index_min(int64_t x, int64_t y) { return x < y ? x : y; }
