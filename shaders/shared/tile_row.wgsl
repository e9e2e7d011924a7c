// The tile row in which a thread writes vec4 lid % 8, and again each PASS_ROWS further. A
// half-subgroup writes rows r and r + 4, which are in different banks if rows are 80 bytes apart.
// Needs PASS_ROWS.
fn tile_row(lid: u32) -> u32 {
    let r = lid / 8u;
    return select(r, (r & 0xfffffff8u) | ((r & 1u) << 2u) | ((r >> 1u) & 3u), PASS_ROWS % 8u == 0u);
}
