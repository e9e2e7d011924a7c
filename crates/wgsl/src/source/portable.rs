//! Finds features that a portable shader may not use, since it must run through wgpu, CUDA C,
//! OpenCL C and the interpreter. The parser and the validator accept more, so this module checks
//! their output.

use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{AddressSpace, Barrier, Binding, Block, BuiltIn, Expression, Function, Handle};
use naga::{MathFunction, Module, Scalar, ScalarKind, Span, Statement, TypeInner};

use super::names::{kind_name, math_name};
use super::scan::words;

/// The WGSL language extensions that a shader may require: those that the parser supports.
const REQUIRED: [&str; 3] = [
    "packed_4x8_integer_dot_product",
    "pointer_composite_access",
    "readonly_and_readwrite_storage_textures",
];

/// Returns the reason why a shader may not use a language extension.
pub(super) fn extension(name: &str) -> String {
    let why = match name {
        "f16" => {
            "not every device computes with f16: use f32, and store f16 values in pairs in a \
             u32, which unpack2x16float, pack2x16float and quantizeToF16 read, write and round \
             without any extension"
        }
        "subgroups" => {
            "not every device has subgroups: exchange values through var<workgroup> and workgroupBarrier()"
        }
        _ => "it runs on every device, and not every device has it",
    };
    format!("`{name}` is an extension that the shader of a pack cannot enable: {why}")
}

/// Returns the byte offset of the first extension that a text without comments enables, and the
/// reason for refusing it.
pub fn needs_extension(code: &str) -> Option<(usize, String)> {
    directive(code, "enable").map(|(at, name)| (at, extension(name)))
}

/// Returns the byte offset of the first unknown language extension that a text without comments
/// requires, and a message.
pub(super) fn unknown_extension(code: &str) -> Option<(usize, String)> {
    let (at, name) = directive(code, "requires").filter(|(_, name)| !REQUIRED.contains(name))?;
    Some((
        at,
        format!("the language extension `{name}` does not exist; known: {}", REQUIRED.join(", ")),
    ))
}

/// Returns the first word after a directive, with its byte offset. The text must have no comments;
/// directives precede all declarations.
fn directive<'a>(code: &'a str, which: &str) -> Option<(usize, &'a str)> {
    let mut words = words(code);
    while let Some((_, word)) = words.next() {
        match word {
            "fn" | "var" | "const" | "override" | "struct" | "alias" | "const_assert" => {
                return None;
            }
            _ if word == which => return words.next(),
            _ => {}
        }
    }
    None
}

/// Returns the location and a description of the first feature that an entry point (given by index)
/// uses and that some device lacks.
pub fn not_portable(
    module: &Module,
    info: &ModuleInfo,
    entry: usize,
) -> Option<(Option<Span>, String)> {
    let point = &module.entry_points[entry];
    let mut walk = Walk { module, found: None };
    walk.arguments(&point.function);
    let uses = info.get_entry_point(entry);
    let private = module
        .global_variables
        .iter()
        .filter(|(h, variable)| variable.space == AddressSpace::Private && !uses[*h].is_empty());
    let private = private
        .map(|(h, variable)| (module.global_variables.get_span(h), &variable.name, variable.ty));
    walk.own_memory("private variables of a shader", private);
    let called = called(module, &point.function);
    for (h, function) in module.functions.iter().filter(|(h, _)| called.contains(h)) {
        walk.function(function, &info[h]);
    }
    walk.function(&point.function, info.get_entry_point(entry));
    walk.found.or_else(|| elsewhere(module, info, &point.name))
}

/// What every device has: WebGPU without optional features.
const FLOOR: Capabilities = Capabilities::SHADER_FLOAT16_IN_FLOAT32
    .union(Capabilities::MULTISAMPLED_SHADING)
    .union(Capabilities::CUBE_ARRAY_TEXTURES);

/// Returns the location and a description of a feature in the rest of a file that some device
/// lacks. wgpu validates whole files, and refuses a file even if `entry` does not use the feature.
fn elsewhere(module: &Module, info: &ModuleInfo, entry: &str) -> Option<(Option<Span>, String)> {
    let error = Validator::new(ValidationFlags::all(), FLOOR).validate(module).err()?;
    let immediate =
        module.global_variables.iter().find(|(_, v)| v.space == AddressSpace::Immediate);
    let mut walk = Walk { module, found: None };
    match immediate {
        Some((h, _)) => walk.refuse(
            module.global_variables.get_span(h),
            "var<immediate> is not on every device: put its numbers into the uniform struct",
        ),
        None => {
            for (h, function) in module.functions.iter() {
                walk.function(function, &info[h]);
            }
            for (number, point) in module.entry_points.iter().enumerate() {
                walk.function(&point.function, info.get_entry_point(number));
            }
        }
    }
    let (span, what) = walk.found.unwrap_or_else(|| {
        (error.spans().next().map(|(span, _)| *span), "this is not on every device".into())
    });
    let all = format!("{what} (`{entry}` does not use it, but devices refuse the whole file)");
    Some((span, all))
}

/// Returns the functions that a function calls, transitively.
fn called(module: &Module, function: &Function) -> Vec<Handle<Function>> {
    fn calls(block: &Block, found: &mut Vec<Handle<Function>>) {
        for statement in block {
            if let Statement::Call { function, .. } = statement
                && !found.contains(function)
            {
                found.push(*function);
            }
            blocks(statement).into_iter().for_each(|block| calls(block, found));
        }
    }
    let mut found = Vec::new();
    calls(&function.body, &mut found);
    let mut next = 0;
    while let Some(function) = found.get(next).copied() {
        calls(&module.functions[function].body, &mut found);
        next += 1;
    }
    found
}

/// Returns the immediate child blocks of a statement.
fn blocks(statement: &Statement) -> Vec<&Block> {
    match statement {
        Statement::Block(block) => vec![block],
        Statement::If { accept, reject, .. } => vec![accept, reject],
        Statement::Switch { cases, .. } => cases.iter().map(|case| &case.body).collect(),
        Statement::Loop { body, continuing, .. } => vec![body, continuing],
        _ => Vec::new(),
    }
}

/// WGSL's guaranteed limit, in bytes, for the private variables of a shader and for the variables
/// of a function.
const MAX_OWN_BYTES: u64 = 8192;

struct Walk<'m> {
    module: &'m Module,
    found: Option<(Option<Span>, String)>,
}

impl Walk<'_> {
    fn refuse(&mut self, span: Span, what: impl Into<String>) {
        if self.found.is_none() {
            self.found = Some((span.is_defined().then_some(span), what.into()));
        }
    }

    /// Checks the built-in inputs of the entry point.
    fn arguments(&mut self, function: &Function) {
        let mut bindings: Vec<&Binding> = Vec::new();
        for argument in &function.arguments {
            bindings.extend(&argument.binding);
            if let TypeInner::Struct { members, .. } = &self.module.types[argument.ty].inner {
                bindings.extend(members.iter().filter_map(|member| member.binding.as_ref()));
            }
        }
        for binding in bindings {
            let what = match binding {
                Binding::BuiltIn(
                    BuiltIn::GlobalInvocationId
                    | BuiltIn::LocalInvocationId
                    | BuiltIn::LocalInvocationIndex
                    | BuiltIn::WorkGroupId
                    | BuiltIn::NumWorkGroups,
                ) => continue,
                Binding::BuiltIn(
                    BuiltIn::NumSubgroups
                    | BuiltIn::SubgroupId
                    | BuiltIn::SubgroupSize
                    | BuiltIn::SubgroupInvocationId,
                ) => SUBGROUPS.to_string(),
                Binding::BuiltIn(other) => {
                    format!("the entry point takes {other:?}, which not every device supports")
                }
                Binding::Location { .. } => "the entry point takes a @location".into(),
            };
            let first = function.expressions.iter().next();
            let span = first.map_or(Span::UNDEFINED, |(h, _)| function.expressions.get_span(h));
            self.refuse(span, what);
        }
    }

    /// Checks variables against WGSL's limit on per-invocation memory; above it, driver compilers
    /// take minutes. `whose` describes the variables in the message.
    fn own_memory<'n>(
        &mut self,
        whose: &str,
        variables: impl Iterator<Item = (Span, &'n Option<String>, Handle<naga::Type>)>,
    ) {
        let mut bytes = 0_u64;
        for (span, name, ty) in variables {
            bytes += u64::from(self.module.types[ty].inner.size(self.module.to_ctx()));
            if bytes > MAX_OWN_BYTES {
                let name = name.as_deref().unwrap_or_default();
                let what = format!(
                    "with var `{name}` the {whose} have {bytes} bytes, and WGSL has {MAX_OWN_BYTES} for them"
                );
                return self.refuse(span, what);
            }
        }
    }

    fn function(&mut self, function: &Function, info: &naga::valid::FunctionInfo) {
        let locals = function.local_variables.iter().map(|(h, variable)| {
            (function.local_variables.get_span(h), &variable.name, variable.ty)
        });
        self.own_memory("variables of a function", locals);
        for (h, expression) in function.expressions.iter() {
            let span = function.expressions.get_span(h);
            let inner = info[h].ty.inner_with(&self.module.types);
            if let Some(what) =
                scalar(inner).and_then(of_scalar).or_else(|| of_expression(expression))
            {
                self.refuse(span, what);
            }
            let bytes = match inner {
                TypeInner::Array { .. } | TypeInner::Struct { .. } => {
                    inner.try_size(self.module.to_ctx())
                }
                _ => None,
            };
            if let Some(bytes) = bytes.filter(|bytes| u64::from(*bytes) > MAX_OWN_BYTES)
                && !matches!(expression, Expression::Constant(_))
            {
                self.refuse(span, format!("a value of {bytes} bytes, and WGSL has {MAX_OWN_BYTES} for variables that could hold it"));
            }
        }
        for (h, variable) in function.local_variables.iter() {
            let inner = &self.module.types[variable.ty].inner;
            if let Some(what) = scalar(inner).and_then(of_scalar).or_else(|| of_type(inner)) {
                self.refuse(function.local_variables.get_span(h), what);
            }
        }
        self.block(&function.body, function, info);
    }

    fn block(&mut self, block: &Block, function: &Function, info: &naga::valid::FunctionInfo) {
        for (statement, span) in block.span_iter() {
            if let Some(what) = of_statement(statement) {
                self.refuse(*span, what);
            }
            if let Statement::Call { arguments, .. } = statement {
                let part = |h: &Handle<Expression>| {
                    let inner = info[*h].ty.inner_with(&self.module.types);
                    inner.pointer_space().is_some()
                        && matches!(
                            function.expressions[*h],
                            Expression::Access { .. } | Expression::AccessIndex { .. }
                        )
                };
                if arguments.iter().any(part) {
                    self.refuse(*span, PART);
                }
            }
            if let Statement::Atomic { pointer, .. } = statement {
                let inner = info[*pointer].ty.inner_with(&self.module.types);
                let base = match inner {
                    TypeInner::Pointer { base, .. } => &self.module.types[*base].inner,
                    inner => inner,
                };
                let of = scalar(base);
                if let Some(what) = of.and_then(of_atomic) {
                    self.refuse(*span, what);
                }
            }
            for block in blocks(statement) {
                self.block(block, function, info);
            }
        }
    }
}

const SUBGROUPS: &str = "subgroups are not on every device: exchange values through var<workgroup> and workgroupBarrier()";
const PART: &str = "a function takes pointers to whole variables here, not to a part of one: pass the variable, or the value and take the result back";
const TEXTURES: &str = "a pack binds storage and uniform buffers, no textures and samplers";
const RAYS: &str = "ray queries are not on every device";

fn scalar(inner: &TypeInner) -> Option<Scalar> {
    match *inner {
        TypeInner::Scalar(scalar) | TypeInner::Atomic(scalar) => Some(scalar),
        TypeInner::Vector { scalar, .. } | TypeInner::Matrix { scalar, .. } => Some(scalar),
        TypeInner::ValuePointer { scalar, .. } => Some(scalar),
        _ => None,
    }
}

fn of_scalar(scalar: Scalar) -> Option<String> {
    match (scalar.kind, scalar.width) {
        (ScalarKind::Bool, _) | (_, 4) => None,
        (ScalarKind::AbstractInt | ScalarKind::AbstractFloat, _) => None,
        (ScalarKind::Float, 2) => Some(extension("f16")),
        (kind, width) => Some(format!(
            "{} is not on every device: numbers are f32, i32 and u32",
            kind_name(kind, width)
        )),
    }
}

fn of_type(inner: &TypeInner) -> Option<String> {
    match inner {
        TypeInner::Image { .. } | TypeInner::Sampler { .. } => Some(TEXTURES.into()),
        TypeInner::RayQuery { .. } | TypeInner::AccelerationStructure { .. } => Some(RAYS.into()),
        TypeInner::CooperativeMatrix { .. } => {
            Some("cooperative matrices are not on every device".into())
        }
        _ => None,
    }
}

fn of_expression(expression: &Expression) -> Option<String> {
    Some(match expression {
        Expression::ImageSample { .. }
        | Expression::ImageLoad { .. }
        | Expression::ImageQuery { .. } => TEXTURES.into(),
        Expression::Derivative { .. } => "derivatives are of fragment shaders".into(),
        Expression::SubgroupBallotResult | Expression::SubgroupOperationResult { .. } => {
            SUBGROUPS.into()
        }
        Expression::RayQueryProceedResult
        | Expression::RayQueryGetIntersection { .. }
        | Expression::RayQueryVertexPositions { .. } => RAYS.into(),
        Expression::CooperativeLoad { .. } | Expression::CooperativeMultiplyAdd { .. } => {
            "cooperative matrices are not on every device".into()
        }
        Expression::Math { fun: fun @ (MathFunction::Inverse | MathFunction::Outer), .. } => {
            format!("`{}` is not a WGSL function", math_name(*fun))
        }
        _ => return None,
    })
}

fn of_statement(statement: &Statement) -> Option<String> {
    Some(match statement {
        Statement::ImageStore { .. } | Statement::ImageAtomic { .. } => TEXTURES.into(),
        Statement::ControlBarrier(barrier) if barrier.contains(Barrier::SUB_GROUP) => {
            SUBGROUPS.into()
        }
        Statement::ControlBarrier(barrier) if barrier.contains(Barrier::TEXTURE) => TEXTURES.into(),
        Statement::SubgroupBallot { .. }
        | Statement::SubgroupGather { .. }
        | Statement::SubgroupCollectiveOperation { .. } => SUBGROUPS.into(),
        Statement::RayQuery { .. } | Statement::RayPipelineFunction(_) => RAYS.into(),
        Statement::CooperativeStore { .. } => "cooperative matrices are not on every device".into(),
        Statement::Kill => "discard is of fragment shaders".into(),
        _ => return None,
    })
}

fn of_atomic(scalar: Scalar) -> Option<String> {
    match (scalar.kind, scalar.width) {
        (ScalarKind::Sint | ScalarKind::Uint, 4) => None,
        (kind, width) => {
            Some(format!("atomics are of i32 and u32, not of {}", kind_name(kind, width)))
        }
    }
}
