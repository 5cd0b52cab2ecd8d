/* A program that reads sizes from memory: its function on a copy of its sizes, with room for those that it reads.
   @NAME       name of the function
   @ARGUMENTS  its parameters
   @BODY       the function that works on the copy
   @COUNT      sizes, the threads, and the sizes that are read
   @GIVEN      those that the caller gives
*/
static int64_t @NAME(@ARGUMENTS) {
    int64_t sizes[@COUNT] = {0};
    memcpy(sizes, s, @GIVEN * sizeof *s);
    return @BODY(b, c, sizes, o, arena, pool);
}
