//! Reports validation errors in terms of the shader's text.

use naga::valid::{
    CallError, ConstExpressionError, EntryPointError, ExpressionError, FunctionError,
    GlobalVariableError, LocalVariableError, TypeError, ValidationError,
};
use naga::{Arena, ArraySize, Expression, Function, Handle, Module, Span, Type};
use naga::{TypeInner, WithSpan};

use super::errors::{Words, in_wgsl};
use super::names::{kind_name, math_name, space_name, type_name};
use warploom_core::error::Error;

/// Maximum size of a type in bytes: the largest `i32`.
const MAX_TYPE_BYTES: u128 = 0x7fff_ffff;

/// Converts a validation error to an error with its location.
pub(super) fn invalid_module(
    words: &Words,
    module: &Module,
    error: &WithSpan<ValidationError>,
) -> Error {
    let first = error.spans().map(|(span, _)| *span).find(|span| span.is_defined());
    let (span, what) = match error.as_inner() {
        ValidationError::Layouter(layout) => too_large(module, layout.ty),
        ValidationError::Type { handle, source, .. } => {
            (place_of(module, *handle), of_type(module, *handle, source))
        }
        ValidationError::GlobalVariable { handle, name, source } => {
            let span = module.global_variables.get_span(*handle);
            (Some(span), of_global(module, *handle, name, source))
        }
        ValidationError::Function { handle, name, source } => {
            of_function(module, &module.functions[*handle], name, source)
        }
        ValidationError::EntryPoint { name, source, .. } => of_entry(words, module, name, source),
        ValidationError::Constant { name, source, .. } => {
            (None, format!("const `{name}`: {}", in_wgsl(&source.to_string())))
        }
        ValidationError::Override { name, source, .. } => {
            (None, format!("override `{name}`: {}", in_wgsl(&source.to_string())))
        }
        ValidationError::ConstExpression { handle, source } => {
            let span = module.global_expressions.get_span(*handle);
            (Some(span), of_constant(source))
        }
        other => (None, in_wgsl(&causes(other))),
    };
    words.fail(span.filter(|span| span.is_defined()).or(first), &what)
}

/// Formats an error with its causes, on one line.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    text
}

/// Returns the location and the message for a type that is too large.
fn too_large(module: &Module, ty: Handle<Type>) -> (Option<Span>, String) {
    let bytes = bytes_of(module, ty);
    let name = type_name(module, &module.types[ty].inner);
    let what = format!("{name} has {bytes} bytes, the limit of a type is {MAX_TYPE_BYTES}");
    (place_of(module, ty), what)
}

/// Returns the size of a type in bytes, without overflow.
fn bytes_of(module: &Module, ty: Handle<Type>) -> u128 {
    match module.types[ty].inner {
        TypeInner::Array { base, size: ArraySize::Constant(n), stride } => {
            // The stride is not known if the elements themselves are too large.
            bytes_of(module, base).max(u128::from(stride)).saturating_mul(u128::from(n.get()))
        }
        TypeInner::Struct { ref members, .. } => {
            members.iter().map(|member| bytes_of(module, member.ty)).fold(0, u128::saturating_add)
        }
        ref inner => u128::from(inner.try_size(module.to_ctx()).unwrap_or(0)),
    }
}

/// Returns a location for a type: its own or else that of a variable, constant or expression of the
/// type, or of a type that contains it.
fn place_of(module: &Module, ty: Handle<Type>) -> Option<Span> {
    let own = module.types.get_span(ty);
    if own.is_defined() {
        return Some(own);
    }
    let is = |other: Handle<Type>| other == ty;
    let variable = module.global_variables.iter().find(|(_, variable)| is(variable.ty));
    if let Some((h, _)) = variable {
        return Some(module.global_variables.get_span(h));
    }
    let made = |arena: &Arena<Expression>| {
        let found = arena.iter().find(|(_, expression)| match expression {
            Expression::ZeroValue(made) | Expression::Compose { ty: made, .. } => is(*made),
            _ => false,
        });
        found.map(|(h, _)| arena.get_span(h)).filter(|span| span.is_defined())
    };
    let points = module.entry_points.iter().map(|point| &point.function);
    for function in module.functions.iter().map(|(_, function)| function).chain(points) {
        let local = function.local_variables.iter().find(|(_, variable)| is(variable.ty));
        let local = local.map(|(h, _)| function.local_variables.get_span(h));
        if let Some(span) = local.or_else(|| made(&function.expressions)) {
            return Some(span);
        }
    }
    let constant = module.constants.iter().find(|(_, constant)| is(constant.ty));
    let constant = constant.map(|(h, _)| module.constants.get_span(h));
    if let Some(span) = constant.or_else(|| made(&module.global_expressions)) {
        return Some(span);
    }
    // Containing types come later in the module.
    let mut holders = module.types.iter().filter(|(_, holder)| match &holder.inner {
        TypeInner::Array { base, .. } | TypeInner::Pointer { base, .. } => is(*base),
        TypeInner::Struct { members, .. } => members.iter().any(|member| is(member.ty)),
        _ => false,
    });
    holders.find_map(|(holder, _)| (holder != ty).then(|| place_of(module, holder)).flatten())
}

/// Returns the message for an invalid type.
fn of_type(module: &Module, ty: Handle<Type>, error: &TypeError) -> String {
    let name = type_name(module, &module.types[ty].inner);
    match error {
        TypeError::EmptyStruct => {
            format!("{name} has no members, and every struct has one at least")
        }
        TypeError::InvalidArrayBaseType(base) => {
            let base = type_name(module, &module.types[*base].inner);
            format!("an array cannot have elements of {base}")
        }
        TypeError::InvalidDynamicArray(member, _) => {
            format!(
                "member `{member}` of {name} has no fixed size, which only the last member may have"
            )
        }
        TypeError::InvalidArraySize(_) => format!("{name} has no positive size"),
        TypeError::InvalidPointerToUnsized { space, .. } => {
            format!("{name} has no fixed size, so it is in storage, not in {}", space_name(*space))
        }
        TypeError::InvalidAtomicWidth(kind, width) => {
            format!("atomics are of i32 and u32, not of {}", kind_name(*kind, *width))
        }
        TypeError::InvalidPointerBase(_) | TypeError::InvalidData(_) => {
            format!("{name} is not possible")
        }
        other => format!("{name}: {}", in_wgsl(&causes(other))),
    }
}

/// Returns the message for an invalid module-scope variable.
fn of_global(
    module: &Module,
    handle: Handle<naga::GlobalVariable>,
    name: &str,
    error: &GlobalVariableError,
) -> String {
    let ty = type_name(module, &module.types[module.global_variables[handle].ty].inner);
    let why = match error {
        GlobalVariableError::InvalidUsage(space) => {
            format!("is used as no var<{}> can be", space_name(*space))
        }
        GlobalVariableError::InvalidType(space) => {
            format!("cannot be {ty} in var<{}>", space_name(*space))
        }
        GlobalVariableError::MissingTypeFlags { .. } => {
            let space = space_name(module.global_variables[handle].space);
            format!(
                "cannot be {ty} in var<{space}>: atomics are in storage and workgroup, bools in neither storage nor uniform, and sizes are fixed outside of storage"
            )
        }
        GlobalVariableError::InvalidBinding => {
            "needs @group and @binding if it is storage or uniform, and no attributes otherwise"
                .into()
        }
        GlobalVariableError::Alignment(space, _, why) => {
            format!(
                "is not laid out as var<{}> demands: {}",
                space_name(*space),
                in_wgsl(&why.to_string())
            )
        }
        GlobalVariableError::InitializerExprType => "is not initialised by a constant".into(),
        GlobalVariableError::InitializerType => format!("is {ty}, and its initial value is not"),
        GlobalVariableError::InitializerNotAllowed(space) => {
            format!("has an initial value, which var<{}> cannot have", space_name(*space))
        }
        GlobalVariableError::StorageAddressSpaceWriteOnlyNotSupported => {
            "is write only, and storage is read or read_write".into()
        }
        other => in_wgsl(&causes(other)),
    };
    format!("var `{name}` {why}")
}

/// Returns the message for an invalid entry point, with its location if there is a precise one.
fn of_entry(
    words: &Words,
    module: &Module,
    name: &str,
    error: &EntryPointError,
) -> (Option<Span>, String) {
    let point = module.entry_points.iter().find(|point| point.name == name);
    match error {
        EntryPointError::Function(error) => match point {
            Some(point) => of_function(module, &point.function, name, error),
            None => (None, in_wgsl(&causes(error))),
        },
        EntryPointError::OutOfRangeWorkgroupSize => {
            let size = point.map_or([0; 3], |point| point.workgroup_size);
            (
                words.size_of_workgroup(name),
                format!(
                    "@workgroup_size of `{name}` is {size:?}: each is at least 1, and their product at most 1024"
                ),
            )
        }
        EntryPointError::BindingCollision(handle) => {
            let variable = &module.global_variables[*handle];
            let own = variable.name.as_deref().unwrap_or_default();
            let other = module
                .global_variables
                .iter()
                .find(|(h, other)| h != handle && other.binding == variable.binding);
            let other = other.and_then(|(_, other)| other.name.as_deref()).unwrap_or("another");
            let at = variable.binding.map_or(String::new(), |at| {
                format!(" @group({}) @binding({})", at.group, at.binding)
            });
            let what = format!("var `{own}` has the same{at} as `{other}`, and `{name}` uses both");
            (Some(module.global_variables.get_span(*handle)), what)
        }
        EntryPointError::InvalidGlobalUsage(handle, _) => {
            let variable = module.global_variables[*handle].name.as_deref().unwrap_or_default();
            (None, format!("`{name}` writes to var `{variable}`, which is read only"))
        }
        EntryPointError::Argument(index, error) => {
            let argument = point.and_then(|point| point.function.arguments.get(*index as usize));
            let argument = argument.and_then(|a| a.name.as_deref()).unwrap_or("?").to_string();
            (None, format!("parameter `{argument}` of `{name}`: {}", in_wgsl(&error.to_string())))
        }
        other => (None, format!("`{name}`: {}", in_wgsl(&causes(other)))),
    }
}

/// Returns the message for an invalid function, with its location if there is a precise one.
fn of_function(
    module: &Module,
    function: &Function,
    name: &str,
    error: &FunctionError,
) -> (Option<Span>, String) {
    let at = |h: Handle<Expression>| Some(function.expressions.get_span(h));
    match error {
        FunctionError::Expression { handle, source } => {
            (at(*handle), of_expression(module, function, *handle, source))
        }
        FunctionError::LocalVariable { handle, name, source } => {
            let ty = type_name(module, &module.types[function.local_variables[*handle].ty].inner);
            let why = match source {
                LocalVariableError::InvalidType(_) => format!(
                    "cannot be {ty}: it has no fixed size, or contains a type for storage and \
                     workgroup only"
                ),
                LocalVariableError::InitializerType => {
                    format!("is {ty}, and its initial value is not")
                }
                other => in_wgsl(&other.to_string()),
            };
            (Some(function.local_variables.get_span(*handle)), format!("var `{name}` {why}"))
        }
        FunctionError::InvalidArgumentPointerSpace { name: argument, space, .. } => {
            let space = space_name(*space);
            (
                None,
                format!(
                    "parameter `{argument}` of `{name}` is a pointer into {space}: here pointers that functions take are ptr<function, ..> or ptr<private, ..>; let `{name}` use the variable itself"
                ),
            )
        }
        FunctionError::InvalidArgumentType { name: argument, .. } => {
            (None, format!("parameter `{argument}` of `{name}` has a type that no parameter has"))
        }
        FunctionError::NonConstructibleReturnType => {
            (None, format!("`{name}` returns a type that no function returns"))
        }
        FunctionError::InvalidReturnType { expression, expected_ty } => {
            let want = expected_ty
                .map_or("nothing".into(), |ty| type_name(module, &module.types[ty].inner));
            let what = match expression {
                Some(_) => format!("`{name}` returns {want}, and this is not"),
                None => {
                    format!("`{name}` returns {want}, but one of its paths has no `return`")
                }
            };
            (expression.and_then(at), what)
        }
        FunctionError::InvalidStorePointer(pointer) => {
            (None, format!("{} cannot be written to", text_of(module, function, *pointer)))
        }
        FunctionError::InvalidStoreTypes { .. } => {
            (None, "the value has another type than the variable".into())
        }
        FunctionError::InvalidCall { function: called, error } => {
            (None, of_call(module, *called, error))
        }
        FunctionError::ConflictingSwitchCase(value) => {
            let value = match value {
                naga::SwitchValue::I32(value) => value.to_string(),
                naga::SwitchValue::U32(value) => value.to_string(),
                naga::SwitchValue::Default => "default".into(),
            };
            (None, format!("two cases of a switch are {value}"))
        }
        FunctionError::NonUniformControlFlow(_, h, why) => {
            let what = match function.expressions.try_get(*h) {
                Ok(Expression::Derivative { .. }) => "a derivative",
                _ => "a barrier",
            };
            (None, apart(what, why))
        }
        FunctionError::NonUniformWorkgroupUniformLoad(why) => {
            (None, apart("workgroupUniformLoad", why))
        }
        FunctionError::InvalidAtomic(error) => (
            None,
            format!("this atomic operation is not possible: {}", in_wgsl(&error.to_string())),
        ),
        other => (None, in_wgsl(&causes(other))),
    }
}

/// Returns the message for an invalid call.
fn of_call(module: &Module, called: Handle<Function>, error: &CallError) -> String {
    let called = module.functions[called].name.as_deref().unwrap_or("?");
    match error {
        CallError::ArgumentCount { required, seen } => {
            format!("`{called}` takes {required} arguments, not {seen}")
        }
        CallError::ArgumentType { index, required, .. } => {
            let want = type_name(module, &module.types[*required].inner);
            format!("`{called}` takes {want} as argument {}", index + 1)
        }
        other => format!("this call of `{called}` is not valid: {}", in_wgsl(&causes(other))),
    }
}

/// Returns the message for the operation `what` in non-uniform control flow, for the reason `why`.
fn apart(what: &str, why: &dyn std::fmt::Display) -> String {
    let why = why.to_string();
    let why = match () {
        () if why.contains("Return") => "some may return before it",
        () if why.contains("Discard") => "some may be discarded before it",
        () => "whether they do depends on a value that may differ between them",
    };
    format!("{what} here is not reached by every invocation together: {why}")
}

/// Returns the name of the variable, argument or function in an expression, in backquotes; without
/// one, `this expression`.
fn text_of(module: &Module, function: &Function, h: Handle<Expression>) -> String {
    let global = |h: &Handle<naga::GlobalVariable>| module.global_variables[*h].name.clone();
    let name = match &function.expressions[h] {
        Expression::GlobalVariable(h) => global(h),
        Expression::LocalVariable(h) => function.local_variables[*h].name.clone(),
        Expression::FunctionArgument(i) => function.arguments[*i as usize].name.clone(),
        Expression::Load { pointer }
        | Expression::Access { base: pointer, .. }
        | Expression::AccessIndex { base: pointer, .. } => {
            return text_of(module, function, *pointer);
        }
        Expression::CallResult(called) => module.functions[*called].name.clone(),
        _ => function.named_expressions.get(&h).cloned(),
    };
    name.map_or("this expression".into(), |name| format!("`{name}`"))
}

/// Returns the message for an invalid expression.
fn of_expression(
    module: &Module,
    function: &Function,
    h: Handle<Expression>,
    error: &ExpressionError,
) -> String {
    match error {
        ExpressionError::IndexOutOfBounds(base, index) => {
            let base = text_of(module, function, *base);
            format!("index {index} is outside of {base}")
        }
        ExpressionError::NegativeIndex(base) => {
            format!("an index of {} is negative", text_of(module, function, *base))
        }
        ExpressionError::InvalidBaseType(base) => {
            format!("{} has no parts", text_of(module, function, *base))
        }
        ExpressionError::InvalidBinaryOperandTypes { op, lhs_type, rhs_type, .. } => {
            let (a, b) = (type_name(module, lhs_type), type_name(module, rhs_type));
            format!("there is no operator {} of {a} and {b}", operator(*op))
        }
        ExpressionError::InvalidUnaryOperandType(_, of) => {
            format!("there is no such operator of {}", text_of(module, function, *of))
        }
        ExpressionError::InvalidArgumentType(fun, index, _) => {
            format!("argument {} of {} has an unsupported type", index + 1, math_name(*fun))
        }
        ExpressionError::WrongArgumentCount(fun) => {
            format!("{} takes a different number of arguments", math_name(*fun))
        }
        ExpressionError::SelectValuesTypeMismatch { accept, reject } => {
            let (a, b) = (type_name(module, accept), type_name(module, reject));
            format!("the values of select are {b} and {a}, which are not the same")
        }
        ExpressionError::SelectConditionNotABool { actual } => {
            format!("the condition of select is {}, not a bool", type_name(module, actual))
        }
        ExpressionError::InvalidZeroValue(ty) => {
            format!("there is no value of {}", type_name(module, &module.types[*ty].inner))
        }
        ExpressionError::ShiftAmountTooLarge { .. } => {
            "the shift exceeds the number of bits".into()
        }
        ExpressionError::DivideByZero => "division by a constant zero".into(),
        ExpressionError::UnsupportedWidth(fun, kind, width) => {
            format!("{} does not exist for {}", math_name(*fun), kind_name(*kind, *width))
        }
        ExpressionError::Literal(error) => in_wgsl(&error.to_string()),
        ExpressionError::InvalidImageClass(_) | ExpressionError::ExpectedImageType(_) => {
            "this is not a texture".into()
        }
        other => {
            let of = text_of(module, function, h);
            format!("{of} is not valid: {}", in_wgsl(&causes(other)))
        }
    }
}

/// Returns the message for an invalid constant expression.
fn of_constant(error: &ConstExpressionError) -> String {
    match error {
        ConstExpressionError::NonConstOrOverride | ConstExpressionError::NonFullyEvaluatedConst => {
            "this value is unknown at compile time, but a constant is required".into()
        }
        other => format!("this constant is not valid: {}", in_wgsl(&causes(other))),
    }
}

fn operator(op: naga::BinaryOperator) -> &'static str {
    use naga::BinaryOperator as Op;
    match op {
        Op::Add => "+",
        Op::Subtract => "-",
        Op::Multiply => "*",
        Op::Divide => "/",
        Op::Modulo => "%",
        Op::Equal => "==",
        Op::NotEqual => "!=",
        Op::Less => "<",
        Op::LessEqual => "<=",
        Op::Greater => ">",
        Op::GreaterEqual => ">=",
        Op::And => "&",
        Op::ExclusiveOr => "^",
        Op::InclusiveOr => "|",
        Op::LogicalAnd => "&&",
        Op::LogicalOr => "||",
        Op::ShiftLeft => "<<",
        Op::ShiftRight => ">>",
    }
}
