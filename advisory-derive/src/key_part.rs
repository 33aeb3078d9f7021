//! `#[derive(KeyPart)]`: a newtype, or an enum without fields, as a value in a key.

use crate::args::Args;
use crate::args::argument::Known;
use crate::derive_input;
use crate::errors::Errors;
use crate::key_pattern::names::last_name;
use crate::newtypes;
use crate::tokens::hygienic;
use advisory_pattern::Shape;
use proc_macro2::{Ident, TokenStream};
use syn::{Data, LitStr, ext::IdentExt};

pub(crate) fn derive(input: TokenStream, errors: &mut Errors) -> Option<TokenStream> {
    let input = derive_input::parse(input, errors)?;
    let name = &input.ident;
    let list = derive_input::attribute(&input.attrs, "key_part")
        .and_then(|attribute| attribute.meta.require_list().ok());
    let written = list.map_or_else(TokenStream::new, |list| list.tokens.clone());
    let krate = Args::parse(written, Known::only(&["crate"]), errors).runtime();
    let (generics, arguments, bounds) = input.generics.split_for_impl();
    let (shape, render) = match &input.data {
        Data::Struct(data) if data.fields.len() == 1 => {
            let field = data.fields.iter().next()?;
            let (ty, member) = (&field.ty, data.fields.members().next()?);
            let inner = last_name(ty, false);
            let shape =
                inner.and_then(|inner| Shape::of_type(&inner).or_else(|| newtypes::shape(&inner)));
            newtypes::remember(name.to_string(), shape);
            (
                hygienic!(<#ty as #krate::KeyPart>::Shape),
                hygienic!(#krate::KeyPart::render(&self.#member, text)),
            )
        }
        Data::Enum(data)
            if !data.variants.is_empty()
                && data
                    .variants
                    .iter()
                    .all(|variant| variant.fields.is_empty()) =>
        {
            newtypes::remember(name.to_string(), Some(Shape::Text));
            let mut texts: Vec<(String, &Ident)> = Vec::new();
            let mut arms = Vec::new();
            for variant in &data.variants {
                let (text, variant) = (rendered_variant(variant, errors), &variant.ident);
                if let Some((_, other)) = texts.iter().find(|(earlier, _)| *earlier == text) {
                    let wanted = format_args!(
                        "`{variant}` and `{other}` render as the same text: write `#[key_part(\"…\")]` on one of them"
                    );
                    errors.at(variant.span(), wanted);
                }
                arms.push(hygienic!(Self::#variant { .. } => #text,));
                texts.push((text, variant));
            }
            (
                hygienic!(#krate::shape::Text),
                hygienic!(text.push_str(match self { #(#arms)* })),
            )
        }
        _ => {
            let wanted = format_args!(
                "`{name}` does not render as one text: derive `KeyPart` for a struct with one field or an enum without fields, or \
                 write a placeholder for each value"
            );
            return errors.refuse(name.span(), wanted);
        }
    };
    Some(hygienic!(
        #[automatically_derived]
        impl #generics #krate::KeyPart for #name #arguments #bounds {
            type Shape = #shape;

            fn render(&self, text: &mut #krate::KeyText<'_>) {
                #render
            }
        }
    ))
}

/// The text of `#[key_part("…")]` on the variant, or else its name.
fn rendered_variant(variant: &syn::Variant, errors: &mut Errors) -> String {
    let Some(attribute) = derive_input::attribute(&variant.attrs, "key_part") else {
        return variant.ident.unraw().to_string();
    };
    if let Ok(text) = attribute.parse_args::<LitStr>() {
        text.value()
    } else {
        errors.at(
            variant.ident.span(),
            "write the variant's text: `#[key_part(\"text\")]`",
        );
        String::new()
    }
}
