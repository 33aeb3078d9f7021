//! A return type as it can be written inside the function's body.

use quote::quote_spanned;
use syn::{GenericArgument, PathArguments, Type, spanned::Spanned};

/// The type with `_` for each `impl Trait`, which cannot be written inside the body.
pub(crate) fn inferred(ty: &Type) -> Type {
    let mut ty = ty.clone();
    infer(&mut ty);
    ty
}

fn infer(ty: &mut Type) {
    match ty {
        Type::ImplTrait(_) => *ty = Type::Verbatim(quote_spanned!(ty.span()=> _)),
        Type::Group(group) => infer(&mut group.elem),
        Type::Paren(paren) => infer(&mut paren.elem),
        Type::Reference(reference) => infer(&mut reference.elem),
        Type::Tuple(tuple) => tuple.elems.iter_mut().for_each(infer),
        Type::Path(path) => {
            for segment in &mut path.path.segments {
                if let PathArguments::AngleBracketed(arguments) = &mut segment.arguments {
                    for argument in &mut arguments.args {
                        if let GenericArgument::Type(ty) = argument {
                            infer(ty);
                        }
                    }
                }
            }
        }
        _ => {}
    }
}
