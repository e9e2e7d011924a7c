//! The operators `+ - * / %` and unary minus, with tensors and scalars on either side.

use std::ops::{Add, AddAssign, Div, DivAssign, Mul, MulAssign, Neg, Rem, Sub, SubAssign};

use super::Tensor;
use super::place::here;
use crate::ir::{BinaryOp, UnaryOp};

macro_rules! operator {
    ($($trait:ident $method:ident;)*) => {$(
        operator!(@right $trait $method: &Tensor, Tensor, f32, i32);
        operator!(@left $trait $method: f32, i32);
    )*};
    (@right $trait:ident $method:ident: $($right:ty),*) => {$(
        impl $trait<$right> for &Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, right: $right) -> Tensor {
                self.binary(BinaryOp::$trait, right.into(), here())
            }
        }
        impl $trait<$right> for Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, right: $right) -> Tensor {
                self.binary(BinaryOp::$trait, right.into(), here())
            }
        }
    )*};
    (@left $trait:ident $method:ident: $($left:ty),*) => {$(
        impl $trait<&Tensor> for $left {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, right: &Tensor) -> Tensor {
                right.binary_of(BinaryOp::$trait, self.into(), here())
            }
        }
        impl $trait<Tensor> for $left {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, right: Tensor) -> Tensor {
                right.binary_of(BinaryOp::$trait, self.into(), here())
            }
        }
    )*};
}

operator! {
    Add add;
    Sub sub;
    Mul mul;
    Div div;
    Rem rem;
}

macro_rules! assign {
    ($($trait:ident $method:ident $op:ident;)*) => {$(
        assign!(@right $trait $method $op: &Tensor, Tensor, f32, i32);
    )*};
    (@right $trait:ident $method:ident $op:ident: $($right:ty),*) => {$(
        impl $trait<$right> for Tensor {
            /// Replaces this handle with the result; other handles keep the old tensor.
            #[track_caller]
            fn $method(&mut self, right: $right) {
                *self = self.binary(BinaryOp::$op, right.into(), here());
            }
        }
    )*};
}

assign! {
    AddAssign add_assign Add;
    SubAssign sub_assign Sub;
    MulAssign mul_assign Mul;
    DivAssign div_assign Div;
}

impl Neg for &Tensor {
    type Output = Tensor;
    #[track_caller]
    fn neg(self) -> Tensor {
        self.unary(UnaryOp::Neg, here())
    }
}

impl Neg for Tensor {
    type Output = Tensor;
    #[track_caller]
    fn neg(self) -> Tensor {
        self.unary(UnaryOp::Neg, here())
    }
}
