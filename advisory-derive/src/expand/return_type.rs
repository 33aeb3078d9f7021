//! The function's return type, in the form that its body can name.

use quote::quote_spanned;
use syn::{GenericArgument, PathArguments, Type, spanned::Spanned};

/// The type with `_` instead of each `impl Trait`, which is not allowed inside the body.
pub(crate) fn without_impl_trait(ty: &Type) -> Type {
    let mut ty = ty.clone();
    replace_impl_trait(&mut ty);
    ty
}

fn replace_impl_trait(ty: &mut Type) {
    match ty {
        Type::ImplTrait(_) => *ty = Type::Verbatim(quote_spanned!(ty.span()=> _)),
        Type::Group(group) => replace_impl_trait(&mut group.elem),
        Type::Paren(paren) => replace_impl_trait(&mut paren.elem),
        Type::Reference(reference) => replace_impl_trait(&mut reference.elem),
        Type::Tuple(tuple) => tuple.elems.iter_mut().for_each(replace_impl_trait),
        Type::Path(path) => {
            for segment in &mut path.path.segments {
                if let PathArguments::AngleBracketed(arguments) = &mut segment.arguments {
                    for argument in &mut arguments.args {
                        if let GenericArgument::Type(ty) = argument {
                            replace_impl_trait(ty);
                        }
                    }
                }
            }
        }
        _ => {}
    }
}
