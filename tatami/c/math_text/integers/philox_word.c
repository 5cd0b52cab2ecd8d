/* Philox4x32-10: word `counter % 4` of block `counter / 4` under a 64-bit key. */
static inline uint32_t t_philox_word(uint64_t key, uint64_t counter) {
  uint64_t block = counter >> 2;
  uint32_t a = (uint32_t)block, b = (uint32_t)(block >> 32), c = 0, d = 0;
  uint32_t k = (uint32_t)key, l = (uint32_t)(key >> 32);
  for (int i = 0; i < 10; ++i) {
    uint64_t p = (uint64_t)a * 0xD2511F53u, q = (uint64_t)c * 0xCD9E8D57u;
    uint32_t w = (uint32_t)(q >> 32) ^ b ^ k, x = (uint32_t)q, y = (uint32_t)(p >> 32) ^ d ^ l, z = (uint32_t)p;
    a = w, b = x, c = y, d = z;
    k += 0x9E3779B9u, l += 0xBB67AE85u;
  }
  uint32_t word[4] = {a, b, c, d};
  return word[counter & 3];
}
