DATA: dict = {}
