// Keys of a slice: `count` keys cut into at most params.splits slices, each a multiple of params.granule
// keys but the last. Why: what is seen is known at run time only, and few keys should be few slices.
fn slice_len(count: u32) -> u32 {
    let granule = max(params.granule, 1u);
    let least = (count + max(params.splits, 1u) - 1u) / max(params.splits, 1u);
    return max((least + granule - 1u) / granule, 1u) * granule;
}
