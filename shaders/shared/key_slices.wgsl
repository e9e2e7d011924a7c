// Keys per slice: `count` keys in at most params.splits slices, each but the last a multiple of
// params.granule. Why: the visible range is only known at run time, and few keys should make few
// slices.
fn slice_len(count: u32) -> u32 {
    let granule = max(params.granule, 1u);
    let least = (count + max(params.splits, 1u) - 1u) / max(params.splits, 1u);
    return max((least + granule - 1u) / granule, 1u) * granule;
}
