"""Classes of unfold, which has no types: type checkers see the classes of Django that they extend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from django.contrib.auth.models import User

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin
    from django.contrib.admin.forms import AdminAuthenticationForm
    from django.contrib.admin.views.main import ChangeList
    from django.contrib.auth.admin import GroupAdmin
    from django.contrib.auth.admin import UserAdmin as _UserAdmin
    from django.contrib.auth.forms import AdminPasswordChangeForm as _AdminPasswordChangeForm
    from django.contrib.auth.forms import AdminUserCreationForm as _AdminUserCreationForm
    from django.contrib.auth.forms import UserChangeForm as _UserChangeForm
    from django.core.paginator import Page, Paginator
    from django.forms import ModelForm, PasswordInput, Select, Textarea, TextInput

    AdminPasswordChangeForm: TypeAlias = _AdminPasswordChangeForm[User]
    AdminUserCreationForm: TypeAlias = _AdminUserCreationForm[User]
    UserChangeForm: TypeAlias = _UserChangeForm[User]
    UserAdmin: TypeAlias = _UserAdmin[User]
    AnyModelForm: TypeAlias = ModelForm[Any]
    AnyPage: TypeAlias = Page[Any]
    AnyPaginator: TypeAlias = Paginator[Any]
else:
    from django.contrib.auth.admin import GroupAdmin, UserAdmin
    from django.core.paginator import Page as AnyPage
    from django.core.paginator import Paginator as AnyPaginator
    from django.forms import ModelForm as AnyModelForm
    from unfold.admin import ModelAdmin as _ModelAdmin
    from unfold.forms import AdminPasswordChangeForm, UserChangeForm
    from unfold.forms import AuthenticationForm as AdminAuthenticationForm
    from unfold.forms import UserCreationForm as AdminUserCreationForm
    from unfold.views import ChangeList
    from unfold.widgets import UnfoldAdminPasswordWidget as PasswordInput
    from unfold.widgets import UnfoldAdminSelectWidget as Select
    from unfold.widgets import UnfoldAdminTextareaWidget as Textarea
    from unfold.widgets import UnfoldAdminTextInputWidget as TextInput

    class ModelAdmin(_ModelAdmin):
        """unfold's, with the type parameter that Django's has for type checkers."""

        def __class_getitem__(cls, row: object) -> type[ModelAdmin]:
            return cls


__all__ = [
    "AdminAuthenticationForm",
    "AdminPasswordChangeForm",
    "AdminUserCreationForm",
    "AnyModelForm",
    "AnyPage",
    "AnyPaginator",
    "ChangeList",
    "GroupAdmin",
    "ModelAdmin",
    "PasswordInput",
    "Select",
    "TextInput",
    "Textarea",
    "UserAdmin",
    "UserChangeForm",
]
