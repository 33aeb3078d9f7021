//! The item under a `#[derive(…)]`, and the attributes that belong to the derive.

use crate::errors::Errors;
use proc_macro2::TokenStream;
use syn::{Attribute, DeriveInput};

pub(crate) fn parse(input: TokenStream, errors: &mut Errors) -> Option<DeriveInput> {
    syn::parse2(input).map_err(|error| errors.push(error)).ok()
}

pub(crate) fn attribute<'a>(attributes: &'a [Attribute], name: &str) -> Option<&'a Attribute> {
    let mut attributes = attributes.iter();
    attributes.find(|attribute| attribute.path().is_ident(name))
}
