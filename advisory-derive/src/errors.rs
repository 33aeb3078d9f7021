//! The errors of one attribute, collected so that one compilation reports all of them.

use proc_macro2::{Span, TokenStream};

#[derive(Default)]
pub(crate) struct Errors(Vec<syn::Error>);

impl Errors {
    pub(crate) fn at(&mut self, span: Span, message: impl std::fmt::Display) {
        self.0.push(syn::Error::new(span, message));
    }

    /// Reports a mistake instead of a value.
    pub(crate) fn refuse<T>(&mut self, span: Span, message: impl std::fmt::Display) -> Option<T> {
        self.at(span, message);
        None
    }

    pub(crate) fn push(&mut self, error: syn::Error) {
        self.0.push(error);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the value unless a mistake was found.
    pub(crate) fn into_result<T>(self, value: Option<T>) -> Result<T, Self> {
        match value {
            Some(value) if self.0.is_empty() => Ok(value),
            _ => Err(self),
        }
    }

    pub(crate) fn into_compile_errors(self) -> TokenStream {
        self.0.iter().map(syn::Error::to_compile_error).collect()
    }
}
