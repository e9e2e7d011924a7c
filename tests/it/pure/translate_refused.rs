//! Untranslatable constructs are refused by name, and options have their documented effect.

use naga::valid::{Capabilities, ValidationFlags, Validator};
use warploom::Error;
use warploom_wgsl::translate::{self, Access, ArrayLength, Binding, Bounds, Options, Subgroups};

const Y: &str = "@group(0) @binding(0) var<storage, read_write> y: array<f32>;\n";

/// The module of a text, parsed with all of naga's features.
fn module(wgsl: &str) -> (naga::Module, naga::valid::ModuleInfo) {
    let module = naga::front::wgsl::parse_str(wgsl).unwrap_or_else(|e| panic!("{e}\n{wgsl}"));
    let info = Validator::new(ValidationFlags::all(), Capabilities::all())
        .validate(&module)
        .unwrap_or_else(|e| panic!("{}\n{wgsl}", e.emit_to_string(wgsl)));
    (module, info)
}

fn refused(wgsl: &str, what: &str, in_cuda: bool) {
    let (module, info) = module(wgsl);
    let check = |error: Error, target: &str| {
        assert!(error.is_unsupported(), "{error}\n{wgsl}");
        let text = error.to_string();
        assert!(text.contains(what) && text.contains(target), "{text}\n{wgsl}");
    };
    let options = Options::default();
    check(translate::opencl(&module, &info, &options).unwrap_err(), "OpenCL C");
    match translate::cuda(&module, &info, &options) {
        Ok(work) => assert!(!in_cuda, "{}", work.text),
        Err(error) => {
            assert!(in_cuda, "{error}");
            check(error, "CUDA C");
        }
    }
}

#[test]
fn what_is_not_translated_is_refused_by_name() {
    let of = |body: &str| format!("{Y}@compute @workgroup_size(8) fn main() {{ {body} }}");
    refused(&of("var a = 1li; y[0] = f32(a);"), "Sint of 8 bytes", true);
    refused(&of("var a = 1.0lf; y[0] = f32(a);"), "Float of 8 bytes", true);
    refused(
        &of("var a = f16(y[1]); y[0] = y[u32(a)];")
            .replacen('@', "enable f16;\n@", 1)
            .replace("var a = f16(y[1]);", "var a = mat2x2<f16>(); a[0].x = f16(y[1]);")
            .replace("u32(a)", "u32(a[0].x)"),
        "a matrix of other elements than f32",
        true,
    );
    refused(&of("y[0] = subgroupAdd(y[1]);"), "a subgroup operation", false);
    refused(
        &format!(
            "{}@group(0) @binding(1) var t: texture_2d<f32>;",
            of("y[0] = textureLoad(t, vec2(0), 0).x;")
        ),
        "variable t of Handle",
        true,
    );
    refused(
        &of("").replace("@group", "@coherent @group").replace("{  }", "{ y[0] = 1.0; }"),
        "@coherent",
        true,
    );
    refused(
        "@group(0) @binding(0) var<storage, read_write> y: atomic<f32>;
         @compute @workgroup_size(1) fn main() { atomicAdd(&y, 1.0); }",
        "an atomic sum of f32",
        false,
    );
    refused(
        &format!(
            "enable f16; enable wgpu_cooperative_matrix;\n{}",
            of("var c: coop_mat8x8<f32, C>; coopStoreT(c, &y[0], 8u);")
        ),
        "a cooperative matrix",
        true,
    );
}

#[test]
fn errors_name_the_function() {
    let wgsl = format!(
        "{Y}fn deep() {{ var a = 1li; y[0] = f32(a); }}
        fn unused() {{ var a = 1.0lf; y[0] = f32(a); }}
        @compute @workgroup_size(1) fn main() {{ deep(); }}"
    );
    refused(&wgsl, "function deep: type Sint", true);
    let called = wgsl.replace("deep(); }", "y[0] = 2.0; }");
    let (module, info) = module(&called);
    // Code that the entry point does not reach is not translated.
    translate::cuda(&module, &info, &Options::default()).unwrap();
}

#[test]
fn entry_points_and_constants_must_exist() {
    let (module, info) = module(&format!(
        "{Y}override N: u32; @compute @workgroup_size(N) fn main() {{ y[0] = f32(N); }}"
    ));
    let with = |name: &str, entry: &str| {
        let constants = [(name.to_string(), 96.0)].into();
        let options = Options { entry: entry.into(), constants, ..Options::default() };
        translate::opencl(&module, &info, &options)
    };
    let work = with("N", "main").unwrap();
    assert_eq!(work.workgroup_size, [96, 1, 1]);
    assert!(work.text.contains("reqd_work_group_size(96, 1, 1)") && work.text.contains("96.0f"));
    assert!(with("N", "other").unwrap_err().is_invalid());
    assert!(with("M", "main").unwrap_err().is_invalid());
    let missing = translate::cuda(&module, &info, &Options::default());
    assert!(missing.unwrap_err().is_invalid());
}

#[test]
fn options_change_what_they_name() {
    let (module, info) = module(&format!(
        "{Y}var<workgroup> t: array<f32, 5>;
         @compute @workgroup_size(256) fn main(@builtin(local_invocation_index) i: u32) {{
             t[i % 5u] = subgroupAdd(y[i]); workgroupBarrier(); y[i] = t[i % 3u]; }}"
    ));
    let opencl = |options: Options| translate::opencl(&module, &info, &options);
    let with = |subgroups| Options { subgroups, ..Options::default() };
    let text = opencl(with(Subgroups::Extension)).unwrap();
    assert_eq!(text.extensions, ["cl_khr_subgroups"]);
    assert!(text.text.contains("sub_group_reduce_add("));
    assert!(text.text.contains("wl_min_u32"));
    assert_eq!(text.workgroup_bytes, 20);
    let error = opencl(with(Subgroups::WorkgroupMemory)).unwrap_err();
    assert!(error.to_string().contains("a subgroup of 256 threads"), "{error}");
    assert!(opencl(with(Subgroups::Refused)).unwrap_err().is_unsupported());

    let bare =
        Options { bounds: Bounds::Unchecked, zero_workgroup_memory: false, ..Options::default() };
    let text = translate::cuda(&module, &info, &bare).unwrap();
    assert!(!text.text.contains("wl_min_u32") && !text.text.contains("for (u32 i"));
    assert!(text.lengths.is_empty() && text.extensions.is_empty());
    assert_eq!(text.bindings, [Binding { group: 0, binding: 0, access: Access::ReadWrite }]);
    assert_eq!(text, translate::cuda(&module, &info, &bare).unwrap());
}

#[test]
fn lengths_are_elements_behind_the_offset() {
    let length = ArrayLength { binding: 0, offset: 16, stride: 12 };
    assert_eq!(length.elements(16 + 36), 3);
    assert_eq!(length.elements(16 + 35), 2);
    assert_eq!(length.elements(4), 0);
    assert_eq!(length.elements(u64::MAX), u32::MAX);
}
