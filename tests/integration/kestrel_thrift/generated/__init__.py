__all__ = ['ttypes', 'constants', 'Kestrel']
