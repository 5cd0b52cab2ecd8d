"""The operators of `ai.onnx.ml`: a file for each family, and the table (docs/onnx-ml.md is printed from it).

table       every operator of the domain, with its handler and its text on the page
trees       TreeEnsemble, TreeEnsembleClassifier, TreeEnsembleRegressor
forest      their nodes, rewritten to one comparison and one table (core/numbers/trees.py)
linear      LinearClassifier, LinearRegressor
svm         SVMClassifier, SVMRegressor
scores      the class of a row of scores, and the transforms after it
scaling     Scaler, Normalizer, Imputer, Binarizer, FeatureVectorizer
encoding    LabelEncoder, CategoryMapper, OneHotEncoder, ArrayFeatureExtractor
maps        ZipMap, DictVectorizer, CastMap
"""
