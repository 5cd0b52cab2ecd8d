/* The number of the lowest bit that is set, `none` where none is. */
static inline int64_t t_first_bit(uint64_t bits, int64_t none) { return bits ? (int64_t)__builtin_ctzll(bits) : none; }
