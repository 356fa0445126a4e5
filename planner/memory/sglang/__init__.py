"""SGLang's fraction and pools."""
