/* A loop of a program: carried values alternate between the results' buffers and a second set, scanned ones go to their row.
   @TURN      slot of the turn's number, after which two conditions lie: whether it runs, and what its body says of the next
   @LIMIT     turns at most
   @SIZE      carried values, at least 1
   @FIRST @RESULTS @SECOND  buffers of their first values, of the results, of the second set
   @START     the first condition
   @ROWS      rows of scanned results; empty without them
   @FAULT     return of a loop that ran another number of times
   @CALL      the body
   @CARRY     its results become the carried values
   @COPIES    the last ones to where the results are
*/
{
    int64_t* it = (int64_t*)(arena + o[@TURN]);
    unsigned char* keep = (unsigned char*)(it + 1);
    int64_t trip = @LIMIT;
    void* now[@SIZE] = {@FIRST};
    void* results[@SIZE] = {@RESULTS};
    void* second[@SIZE] = {@SECOND};
    keep[0] = @START;
@if ROWS
    if (trip > @ROWS) @FAULT;
@end
    for (*it = 0; *it < trip && keep[0]; ++*it) {
        void** then = *it & 1 ? second : results;
        @CALL
        keep[0] = keep[1];
        @CARRY
    }
    @COPIES
@if ROWS
    if (*it != @ROWS) @FAULT;
@end
}
