/* Rounds to minus infinity; y > 0. */
static inline int64_t t_floor_division(int64_t x, int64_t y) {
  int64_t q = x / y;
  return q - (x - q * y < 0);
}
