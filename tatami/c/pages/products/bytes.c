/* wide(p): a vector of bytes from p on, as floats, by way of 32 bits. The instruction that converts while it loads is written
   as such, since gcc takes the vector apart.
   @TYPE      element of one byte in C
   @LANES     elements of a vector
   @WIDE      bytes of a vector of 32-bit integers
   @HAS       macro of the instruction set that has the instruction; empty where none has
   @WIDEN     the instruction
   @REGISTER  constraint of its result
*/
typedef @TYPE B;
typedef B N __attribute__((vector_size(@LANES), aligned(1), may_alias));
typedef int32_t I __attribute__((vector_size(@WIDE)));
static inline __attribute__((always_inline)) V wide(const B *p) {
@if HAS
#if defined(@HAS)
  I x;
  __asm__("@WIDEN %1, %0" : "=@REGISTER"(x) : "m"(*(const N *)p));
#else
@end
  I x = __builtin_convertvector(*(const N *)p, I);
@if HAS
#endif
@end
  return __builtin_convertvector(x, V);
}
