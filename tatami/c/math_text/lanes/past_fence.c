/* Before others read what was stored past the caches: x86 orders such stores by this only. */
static inline void t_past_fence(void) {
#if defined(__SSE__)
  __builtin_ia32_sfence();
#endif
}
