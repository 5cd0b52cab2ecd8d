/* The types of a routine: elements T, vectors V of them, and U, such vectors at any address.
   @TYPE    element in C
   @VECTOR  bytes of a vector
   @BYTES   bytes of an element
   @MORE    functions that a product of narrow numbers needs: bytes.c, or `dot` of c/products/dots.py
*/
#include <stdint.h>
typedef @TYPE T;
typedef T V __attribute__((vector_size(@VECTOR), may_alias));
typedef T U __attribute__((vector_size(@VECTOR), aligned(@BYTES), may_alias));
@MORE
