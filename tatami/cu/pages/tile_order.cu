/* Tile row and column of number t: groups of @GROUP rows, column by column; or, in groups, squares along Hilbert's curve, where
   neighbours in time are neighbours in the matrix.
   @GROUP    rows of tiles in a group
   @HILBERT  True for Hilbert's curve: `row`, `column`
*/
const int first = t / (@GROUP * NT) * @GROUP;
const int height = MT - first < @GROUP ? MT - first : @GROUP;
t %= @GROUP * NT;
@if HILBERT
const int left = t / (height * @GROUP) * @GROUP, width = NT - left;
t -= left * height;
int row = t % height, column = t / height;
if (height == @GROUP && width >= @GROUP) tt_hilbert<@GROUP>(t, row, column);
@end
