/* The sizes of a loop's next turn (c/print_turns.py, execution/views/growth.py).
   @NAME      name of the function
   @VALUES    the next values of the sizes that change
   @ASSIGN    assignments of these values
   @WITHIN    condition: they are at most those of `room`
*/
EXPORT int @NAME(int64_t* s, const int64_t* room) {
    const int64_t to[] = {@VALUES};
    @ASSIGN
    return @WITHIN;
}
