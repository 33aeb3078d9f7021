//! The function's return type, in the form that its body can name.

use quote::quote_spanned;
use syn::{GenericArgument, PathArguments, Type, spanned::Spanned};

/// Writes `_` instead of each `impl Trait`, which is not allowed inside the body.
pub(crate) fn replace_impl_trait(ty: &mut Type) {
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

#[cfg(test)]
mod tests {
    use super::replace_impl_trait;
    use crate::written::{joined, rows};
    use proc_macro2::{Delimiter, Group, TokenStream};
    use quote::ToTokens;
    use syn::Type;

    #[test]
    fn each_impl_trait_is_inferred() {
        let tokens = |text: &str| text.parse::<TokenStream>().expect("tokens");
        for [output, wanted] in rows(
            "
            impl Sized => _
            &'a mut impl Sized => &'amut_
            (impl Sized) => (_)
            (u8, impl Sized) => (u8,_)
            io::Result<'a, Box<impl Sized>, 7> => io::Result<'a,Box<_>,7>
            Result<dyn At, [u8; 2]> => Result<dynAt,[u8;2]>
        ",
        ) {
            // The form in which a `macro_rules` macro passes it on.
            let group = Group::new(Delimiter::None, tokens(output));
            for output in [tokens(output), group.into_token_stream()] {
                let mut ty: Type = syn::parse2(output).expect("a type");
                replace_impl_trait(&mut ty);
                assert_eq!(joined(&ty.into_token_stream()), wanted);
            }
        }
    }
}
