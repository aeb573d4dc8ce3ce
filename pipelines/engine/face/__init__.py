"""The Python interface: what `import featurelab` offers over the engine."""
