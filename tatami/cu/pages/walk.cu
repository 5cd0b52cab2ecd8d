/* The tiles of a persistent block: `locate` sets where one is.
   @COUNTS       tiles along m and n
   @BATCH        matrices and parts of k, as factors
   @NAMES        m0, n0, then what else says where a tile is
   @LINE         the line of all blocks of k of all tiles, and this block's part of it; empty where it makes whole tiles
   @ORDER        tile_order.cu, or empty where tiles go along rows
   @M0 @N0       first row and column of tile t
   @Z            True if there are several matrices or parts of k
   @IN_PARTS     True if a tile is a part of k
   @MATRICES     matrices
   @COORDINATES  batch coordinates of matrix z
*/
@COUNTS
const int tiles = MT * NT@BATCH;
tt_i64 @NAMES;
@LINE
auto locate = [&](int tile) {
  int t = tile % (MT * NT);
  @ORDER
  m0 = @M0;
  n0 = @N0;
@if Z
  tt_i64 z = tile / (MT * NT);
@end
@if IN_PARTS
  split = z / (@MATRICES);
  k_first = split * KB * BK;
@if COORDINATES
  z %= @MATRICES;
@end
@end
  @COORDINATES
};
