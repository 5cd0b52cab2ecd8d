/* The constants that `setup` makes, before the program runs.
   @BUFFERS  boundary buffers of setup and constants
   @GIVEN    where each of them is
   @ARENA    bytes of its arena
*/
{
    void* s[@BUFFERS];
    @GIVEN
    void* arena = memory(@ARENA);
    int64_t fault = tatami_setup(s, setup_sizes, setup_slots, arena, pool);
    if (fault) { fprintf(stderr, "fault %d in setup\n", (int)(fault & 255)); return 2; }
    free(arena);
}
