"""The operations that traced laws are made of, by what `compact` does with them."""

from jax import lax

CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "custom_jvp_call": "call_jaxpr"}
"""Calls of inner programs, and the parameter that holds them."""

ELEMENTWISE = frozenset(
    {
        "add", "add_any", "sub", "mul", "div", "rem", "max", "min", "neg", "abs", "sign", "floor", "ceil", "round",
        "sqrt", "rsqrt", "exp", "log", "log2", "log1p", "expm1", "pow", "integer_pow", "square",
        "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not", "xor", "select_n", "clamp", "is_finite",
        "convert_element_type", "stop_gradient", "copy", "copy_p", "bitcast_convert_type",
    }
)  # fmt: skip
"""Operations on arrays of one shape, number by number."""

CHOICES = {"min": lax.lt_p, "max": lax.gt_p}
"""Extremes of two numbers as a choice between them."""

ALONG_LAYERS = {
    "reduce_sum": lax.add_p, "reduce_max": lax.max_p, "reduce_min": lax.min_p,
    "reduce_and": lax.and_p, "reduce_or": lax.or_p,
}  # fmt: skip
"""What joins two layers where an axis of layers is reduced."""
